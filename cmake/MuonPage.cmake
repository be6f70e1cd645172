# cmake -D web=DIR -D script=FILE -D page=OUT -P MuonPage.cmake: web/page.html with its style and scripts
# inside of it.
file(READ ${web}/page.html text)
foreach(file IN ITEMS style.css chart.js)
    file(READ ${web}/${file} part)
    string(REPLACE "@${file}@" "${part}" text "${text}")
endforeach()
file(READ ${web}/${script} part)
string(REPLACE "@page.js@" "${part}" text "${text}")
file(WRITE ${page} "${text}")
